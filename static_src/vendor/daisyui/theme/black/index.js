import black from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedblack = addPrefix(black, prefix);
  addBase({ ...prefixedblack });
};
