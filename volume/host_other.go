//go:build !linux

package volume

import (
	"io"
	"os"
	"syscall"

	"github.com/bourse-dev/bourse"
)

var errOther = bourse.Errorf(bourse.CodeUnavailable, "this host does not support volumes: they require Linux")

// CheckHost returns CodeUnavailable.
func CheckHost() error { return errOther }

func mayGrow() bool                             { return false }
func hostSupportsCrypt() bool                   { return false }
func killWithParent() *syscall.SysProcAttr      { return nil }
func freeze(string) error                       { return errOther }
func thaw(string) error                         { return errOther }
func flush(string) error                        { return errOther }
func growFS(string, string) error               { return errOther }
func growLoop(string) error                     { return errOther }
func mountExt4(string, string, bool) error      { return errOther }
func inodeOf(os.FileInfo) uint64                { return 0 }
func isDamage(error) bool                       { return false }
func unmount(string) error                      { return errOther }
func detach(string) error                       { return errOther }
func mountedOn(string) (string, error)          { return "", errOther }
func mountsBelow(string) ([]string, error)      { return nil, errOther }
func attachLoop(string, bool) (*os.File, error) { return nil, errOther }
func lastingLoop(string) (*os.File, error)      { return nil, errOther }
func detachLoop(string) error                   { return errOther }
func boundLoop(string) (*os.File, error)        { return nil, errOther }
func clearLoops(func(string) bool) error        { return errOther }
func clone(_, _ *os.File) error                 { return errOther }
func cannotClone(error) bool                    { return true }
func punchHole(*os.File, int64, int64) error    { return errOther }
func writeBack(*os.File, int64, int64)          {}
func allocated(*os.File) (int64, error)         { return 0, errOther }

func statUsage(string) (bourse.VolumeUsage, error) { return bourse.VolumeUsage{}, errOther }

func nextData(*os.File, int64) (from, to int64, err error) { return 0, 0, io.EOF }
