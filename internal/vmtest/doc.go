// Package vmtest boots virtual machines for tests that need a kernel or an init system other than
// this host's. The machines use Debian's cloud kernel, no hardware acceleration, and only an
// initial file system. The package works on Linux on x86-64. On other systems, or if qemu or the
// kernel is missing, tests are skipped.
package vmtest
