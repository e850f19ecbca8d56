export { compressionExplorer } from "./compression/explorer.js";
