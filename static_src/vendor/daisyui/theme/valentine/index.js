import valentine from './object.js';
import { addPrefix } from '../../functions/addPrefix.js';

export default ({ addBase, prefix = '' }) => {
  const prefixedvalentine = addPrefix(valentine, prefix);
  addBase({ ...prefixedvalentine });
};
