import checkbox from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedcheckbox = addPrefix(checkbox, prefix);
  addComponents({ ...prefixedcheckbox });
};
