import loading from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedloading = addPrefix(loading, prefix);
  addComponents({ ...prefixedloading });
};
