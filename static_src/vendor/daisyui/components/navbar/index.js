import navbar from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixednavbar = addPrefix(navbar, prefix);
  addComponents({ ...prefixednavbar });
};
