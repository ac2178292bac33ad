// Package cluster implements the commands that show and change a cluster's servers:
// "bourse worker", "region", "view" and "proxy".
package cluster
