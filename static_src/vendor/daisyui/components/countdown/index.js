import countdown from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedcountdown = addPrefix(countdown, prefix);
  addComponents({ ...prefixedcountdown });
};
