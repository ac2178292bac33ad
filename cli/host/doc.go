// Package host implements the commands that set up and check hosts. "bourse init" sets up
// the first host of a cluster, and "bourse join" adds another host. "bourse doctor"
// checks a host. "bourse restore" sets up a lost host again, from a file created by
// "bourse backup".
package host
