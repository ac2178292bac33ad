package volume

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
)

// blockSize is the block size, in bytes, of every file system.
const blockSize = 4096

// features lists the features of every file system. The defaults of the host's mke2fs are not used,
// because they vary between versions, and the kernels of all workers must be able to read the file
// system. metadata_csum_seed makes it possible to give a copied file system its own identity
// without rewriting all checksums.
const features = "none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file," +
	"dir_nlink,extra_isize,metadata_csum,metadata_csum_seed"

// makeFSArgs returns the command that creates a file system on an image or device. A volume has a
// journal and can grow; scratch space does not have a journal and cannot grow. The command first
// discards the target's blocks, so that all blocks that mke2fs does not write contain zeros.
func makeFSArgs(target, uuid string, scratch bool) []string {
	wanted := features + ",has_journal,resize_inode"
	if scratch {
		wanted = features
	}
	return []string{
		"mke2fs", "-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-O", wanted,
		"-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", "-U", uuid, target,
	}
}

// uuidOf returns the UUID of an object's file system. It is derived from the id, so that creating
// the file system again yields the same UUID.
func uuidOf(id string) string {
	h := sha256.Sum256([]byte("bourse volume " + id))
	b := h[:16]
	b[6] = b[6]&0x0f | 0x80 // version 8: derived in a custom way
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// makeImage creates an empty sparse file of the given size.
func makeImage(path string, bytes int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(bytes); err != nil {
		_ = f.Close() // Close cannot lose data, because nothing was written
		return nil, err
	}
	return f, nil
}

// renewIdentity replays the journal of a copied file system and repairs minor damage. It then
// replaces the file system's UUID with the one derived from id.
func renewIdentity(ctx context.Context, id, image string) error {
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	_, err = readSuperblock(f)
	_ = f.Close() // Close cannot lose data, because nothing was written
	if err != nil {
		return damaged(id, err.Error())
	}
	if err := repair(ctx, id, image, false); err != nil {
		return err
	}
	return run(ctx, nil, []string{"tune2fs", "-U", uuidOf(id), image})
}

// repair replays the journal and makes the repairs that are safe. If full is set, it checks the
// whole file system even if the file system is marked as clean.
func repair(ctx context.Context, id, target string, full bool) error {
	argv := []string{"e2fsck", "-p", target}
	if full {
		argv = []string{"e2fsck", "-fp", target}
	}
	err := run(ctx, nil, argv, 1) // exit code 1 means that errors were corrected
	if err != nil && context.Cause(ctx) == nil && strings.Contains(err.Error(), "exit status 4") {
		return damaged(id, "its file system has errors that e2fsck cannot repair automatically")
	}
	return err
}
