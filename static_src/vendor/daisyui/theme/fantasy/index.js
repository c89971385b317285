import fantasy from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedfantasy = addPrefix(fantasy, prefix);
  addBase({ ...prefixedfantasy });
};
