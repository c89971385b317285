import night from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixednight = addPrefix(night, prefix);
  addBase({ ...prefixednight });
};
