export { stalenessView } from "./staleness/view.js";
