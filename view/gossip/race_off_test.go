//go:build !race

package gossip_test

const manyMembers = 100
