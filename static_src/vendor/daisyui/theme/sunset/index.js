import sunset from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedsunset = addPrefix(sunset, prefix);
  addBase({ ...prefixedsunset });
};
