import dropdown from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixeddropdown = addPrefix(dropdown, prefix);
  addComponents({ ...prefixeddropdown });
};
