import alert from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addComponents, prefix = '' }) => {
  const prefixedalert = addPrefix(alert, prefix);
  addComponents({ ...prefixedalert });
};
