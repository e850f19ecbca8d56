export { shardingPlayer } from "./sharding/player.js";
