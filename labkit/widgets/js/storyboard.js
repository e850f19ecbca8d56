export { storyboard } from "./storyboard/view.js";
