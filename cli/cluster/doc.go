// Package cluster implements the commands that show and change a cluster's servers:
// "bourse worker", "member", "region", "policy", "view" and "proxy".
package cluster
