import radialprogress from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedradialprogress = addPrefix(radialprogress, prefix);
  addComponents({ ...prefixedradialprogress });
};
