//go:build unix && !linux

package process

func requestShortSlice(int) {}

func niceness() int { return 0 }
