import divider from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixeddivider = addPrefix(divider, prefix);
  addComponents({ ...prefixeddivider });
};
