import fieldset from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedfieldset = addPrefix(fieldset, prefix);
  addComponents({ ...prefixedfieldset });
};
