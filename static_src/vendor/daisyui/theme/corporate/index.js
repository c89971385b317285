import corporate from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedcorporate = addPrefix(corporate, prefix);
  addBase({ ...prefixedcorporate });
};
