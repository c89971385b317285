import aqua from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedaqua = addPrefix(aqua, prefix);
  addBase({ ...prefixedaqua });
};
