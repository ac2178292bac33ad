// Package vmtest boots virtual machines for tests that need another kernel or init system than
// this host's. The machines have Debian's cloud kernel, no acceleration, and only an initial
// file system. They work on Linux on x86-64; elsewhere, and where qemu or the kernel is
// missing, tests are skipped.
package vmtest
