// Package packages tests the Debian package on a Debian host with systemd: it installs,
// upgrades and removes the package. The host is a virtual machine (package vmtest) with
// the file system that scripts/need-debian builds.
package packages
