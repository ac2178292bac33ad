// Package host implements the commands that make a host part of a cluster, "bourse init" on
// the first host and "bourse join" on every other one, and "bourse doctor", which checks a
// host.
package host
