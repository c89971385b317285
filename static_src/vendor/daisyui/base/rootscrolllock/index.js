import rootscrolllock from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedrootscrolllock = addPrefix(rootscrolllock, prefix);
  addBase({ ...prefixedrootscrolllock });
};
