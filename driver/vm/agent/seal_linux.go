package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A snapshot contains the guest's memory, and therefore its secrets. It is stored as a sequence of encrypted chunks.
// The key exists only in this process's memory, so a snapshot is useless without this process. Each chunk's nonce is
// the chunk's number. All chunks are full except the last one, which may be empty. A reader therefore notices missing
// chunks.

const chunkSize = 1 << 20

var errDamaged = errors.New("the snapshot is damaged")

// newKey returns a random key for one snapshot. The key must not be reused, because the nonces start at 0 for each
// snapshot.
func newKey() cipher.AEAD {
	key := make([]byte, 32)
	_, _ = rand.Read(key)           // never fails
	block, _ := aes.NewCipher(key)  // fails only for other sizes of keys
	aead, _ := cipher.NewGCM(block) // fails only for other sizes of blocks
	return aead
}

// seal reads data until EOF, and writes it in encrypted form. It returns an error if the data exceeds limit bytes.
func seal(to io.Writer, from io.Reader, key cipher.AEAD, limit int64) error {
	chunk := make([]byte, chunkSize, chunkSize+key.Overhead())
	for i, size := uint64(0), int64(0); ; i++ {
		n, err := io.ReadFull(from, chunk)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		if size += int64(n); size > limit {
			return fmt.Errorf("the snapshot exceeds %d bytes", limit)
		}
		if _, err := to.Write(key.Seal(chunk[:0], nonce(key, i), chunk[:n], nil)); err != nil || last {
			return err
		}
	}
}

// unseal is the inverse of seal. It returns errDamaged if the encrypted data was changed or truncated. In that case,
// it may already have written some of the decrypted data.
func unseal(to io.Writer, from io.Reader, key cipher.AEAD) error {
	sealed := make([]byte, chunkSize+key.Overhead())
	for i := uint64(0); ; i++ {
		n, err := io.ReadFull(from, sealed)
		last := errors.Is(err, io.ErrUnexpectedEOF)
		if errors.Is(err, io.EOF) {
			return errDamaged
		}
		if err != nil && !last {
			return err
		}
		chunk, err := key.Open(sealed[:0], nonce(key, i), sealed[:n], nil)
		if err != nil {
			return errDamaged
		}
		if _, err := to.Write(chunk); err != nil || last {
			return err
		}
	}
}

func nonce(key cipher.AEAD, number uint64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, key.NonceSize()-8), number)
}
