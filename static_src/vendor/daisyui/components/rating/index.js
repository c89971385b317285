import rating from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedrating = addPrefix(rating, prefix);
  addComponents({ ...prefixedrating });
};
