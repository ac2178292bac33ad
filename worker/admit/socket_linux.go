package admit

import "syscall"

// socket returns a TCP socket that child processes do not inherit. It does not block
// while another goroutine forks.
func socket() (int, error) {
	return syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
}
