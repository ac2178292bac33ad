// Package host implements "bourse init", which sets up the first host of a cluster,
// "bourse join", which adds another host, and "bourse doctor", which checks a host.
package host
