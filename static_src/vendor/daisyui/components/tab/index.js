import tab from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedtab = addPrefix(tab, prefix);
  addComponents({ ...prefixedtab });
};
