// The little of ZMTP 3.0 (rfc.zeromq.org/spec/23) that a DEALER without security needs: greeting, READY, frames.
//
// Not here: what the frames mean (msgpack.go, session.go).
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
	frameMax    = 64 << 20
)

type dealer struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

func dial(address string) (*dealer, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	d := &dealer{conn: conn, in: bufio.NewReader(conn), out: bufio.NewWriter(conn)}
	if err := d.greet(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting: %w", err)
	}
	return d, nil
}

func (d *dealer) greet() error {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	d.out.Write(greeting)
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
	d.out.Write([]byte{flagCommand, byte(len(ready))})
	d.out.Write(ready)
	if err := d.out.Flush(); err != nil {
		return err
	}
	theirs := make([]byte, 64)
	if _, err := io.ReadFull(d.in, theirs); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[10] < 3 {
		return fmt.Errorf("not ZMTP 3: % x", theirs[:12])
	}
	flags, body, err := d.frame()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || len(body) < 6 || string(body[1:6]) != "READY" {
		return fmt.Errorf("no READY: %q", body)
	}
	return nil
}

func (d *dealer) frame() (byte, []byte, error) {
	flags, err := d.in.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&flagLong != 0 {
		var long [8]byte
		if _, err := io.ReadFull(d.in, long[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(long[:])
	} else {
		short, err := d.in.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(short)
	}
	if size > frameMax {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d are taken", size, frameMax)
	}
	body := make([]byte, size)
	_, err = io.ReadFull(d.in, body)
	return flags, body, err
}

// receive gives the frames of the next message. Commands of ZMTP itself are passed over.
func (d *dealer) receive() ([][]byte, error) {
	var frames [][]byte
	for {
		flags, body, err := d.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			continue
		}
		frames = append(frames, body)
		if flags&flagMore == 0 {
			return frames, nil
		}
	}
}

func (d *dealer) send(frames ...[]byte) error {
	for number, frame := range frames {
		flags := byte(flagLong)
		if number < len(frames)-1 {
			flags |= flagMore
		}
		var head [9]byte
		head[0] = flags
		binary.BigEndian.PutUint64(head[1:], uint64(len(frame)))
		d.out.Write(head[:])
		d.out.Write(frame)
	}
	return d.out.Flush()
}
