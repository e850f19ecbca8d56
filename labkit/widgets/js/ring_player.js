export { ringPlayer } from "./ring/player.js";
