import rootscrollgutter from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedrootscrollgutter = addPrefix(rootscrollgutter, prefix);
  addBase({ ...prefixedrootscrollgutter });
};
