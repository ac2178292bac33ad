// Package trywrite writes to connections without waiting: as much as the
// system takes at once. Who writes for others from a goroutine that has other
// things to do needs that; what is left is for one that may wait.
package trywrite
