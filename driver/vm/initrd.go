package vm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// modules lists the kernel modules that the guest loads. Missing modules are skipped, because they
// may be built into the kernel.
var modules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk", "virtio_console",
	"failover", "net_failover", "virtio_net", "crc32c_generic", "libcrc32c", "erofs", "overlay", "crc16", "mbcache", "jbd2", "ext4",
}

// writeInitrd writes the guest's initial file system: the agent and the modules.
func (h *Host) writeInitrd(f *os.File) error {
	w := cpio.NewWriter(f)
	add := func(name string, mode cpio.FileMode, data []byte) error {
		if err := w.WriteHeader(&cpio.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	for _, dir := range []string{"dev", "proc", "sys", "modules"} {
		if err := add(dir, cpio.TypeDir|0o755, nil); err != nil {
			return err
		}
	}
	if err := add("init", cpio.TypeReg|0o755, h.cfg.Agent); err != nil {
		return err
	}
	found, err := findModules(h.modules)
	if err != nil {
		return err
	}
	for i, name := range modules {
		path, ok := found[name]
		if !ok {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := add(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path)), cpio.TypeReg|0o644, data); err != nil {
			return err
		}
	}
	return w.Close()
}

// findModules returns the paths of all kernel modules below a directory, by module name.
func findModules(dir string) (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, extension, ok := strings.Cut(d.Name(), ".ko")
		if ok && d.Type().IsRegular() && (extension == "" || extension == ".xz" || extension == ".zst" || extension == ".gz") {
			out[strings.ReplaceAll(name, "-", "_")] = path
		}
		return nil
	})
	return out, err
}
