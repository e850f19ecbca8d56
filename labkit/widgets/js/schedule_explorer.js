export { scheduleExplorer } from "./schedule/explorer.js";
