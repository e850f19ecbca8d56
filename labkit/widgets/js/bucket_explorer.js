export { bucketExplorer } from "./buckets/explorer.js";
