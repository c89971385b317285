import wireframe from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedwireframe = addPrefix(wireframe, prefix);
  addBase({ ...prefixedwireframe });
};
