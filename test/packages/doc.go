// Package packages installs, upgrades and removes the Debian package on a Debian host with
// systemd: a virtual machine (package vmtest) with the file system that scripts/need-debian
// builds.
package packages
