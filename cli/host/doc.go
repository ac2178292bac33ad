// Package host implements "bourse init", which sets up the first host of a cluster,
// "bourse join", which adds another host, "bourse doctor", which checks a host, and
// "bourse backup" and "bourse restore", which set up a lost host again.
package host
