import winter from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedwinter = addPrefix(winter, prefix);
  addBase({ ...prefixedwinter });
};
