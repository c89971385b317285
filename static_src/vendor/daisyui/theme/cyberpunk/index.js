import cyberpunk from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedcyberpunk = addPrefix(cyberpunk, prefix);
  addBase({ ...prefixedcyberpunk });
};
