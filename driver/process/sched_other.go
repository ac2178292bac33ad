//go:build unix && !linux

package process

func hurry(int) {}

func niceness() int { return 0 }
