import kbd from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedkbd = addPrefix(kbd, prefix);
  addComponents({ ...prefixedkbd });
};
