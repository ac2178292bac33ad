//go:build !race

package view_test

const manyMembers = 100
