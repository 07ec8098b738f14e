// MessagePack, as far as the protocol uses it: nil, bool, integers, strings, binary, arrays, maps with text as keys.
package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

type dict = map[string]any
type list = []any

func pack(value any) []byte { return appendValue(nil, value) }

func appendValue(to []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(to, 0xc0)
	case bool:
		if v {
			return append(to, 0xc3)
		}
		return append(to, 0xc2)
	case int:
		return appendInt(to, int64(v))
	case int64:
		return appendInt(to, v)
	case string:
		to = append(to, 0xdb)
		to = binary.BigEndian.AppendUint32(to, uint32(len(v)))
		return append(to, v...)
	case list:
		to = append(to, 0xdd)
		to = binary.BigEndian.AppendUint32(to, uint32(len(v)))
		for _, item := range v {
			to = appendValue(to, item)
		}
		return to
	case dict:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		to = append(to, 0xdf)
		to = binary.BigEndian.AppendUint32(to, uint32(len(v)))
		for _, key := range keys {
			to = appendValue(appendValue(to, key), v[key])
		}
		return to
	}
	panic(fmt.Sprintf("no way to pack %T", value))
}

func appendInt(to []byte, value int64) []byte {
	to = append(to, 0xd3)
	return binary.BigEndian.AppendUint64(to, uint64(value))
}

type unpacker struct {
	data []byte
	at   int
}

// unpack reads one value; what is malformed is an error, and never a panic.
func unpack(data []byte) (value any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("malformed MessagePack: %v", problem)
		}
	}()
	u := &unpacker{data: data}
	return u.value(), nil
}

func (u *unpacker) take(count int) []byte {
	taken := u.data[u.at : u.at+count]
	u.at += count
	return taken
}

func (u *unpacker) size(width int) int {
	var number uint64
	for _, part := range u.take(width) {
		number = number<<8 | uint64(part)
	}
	return int(number)
}

func (u *unpacker) text(count int) string { return string(u.take(count)) }

func (u *unpacker) array(count int) list {
	items := list{}
	for ; count > 0; count-- {
		items = append(items, u.value())
	}
	return items
}

func (u *unpacker) mapping(count int) dict {
	items := dict{}
	for ; count > 0; count-- {
		key := fmt.Sprint(u.value())
		items[key] = u.value()
	}
	return items
}

func (u *unpacker) value() any {
	switch tag := u.take(1)[0]; {
	case tag <= 0x7f:
		return int64(tag)
	case tag >= 0xe0:
		return int64(int8(tag))
	case tag&0xf0 == 0x80:
		return u.mapping(int(tag & 0x0f))
	case tag&0xf0 == 0x90:
		return u.array(int(tag & 0x0f))
	case tag&0xe0 == 0xa0:
		return u.text(int(tag & 0x1f))
	case tag == 0xc0:
		return nil
	case tag == 0xc2 || tag == 0xc3:
		return tag == 0xc3
	case tag >= 0xc4 && tag <= 0xc6:
		return u.text(u.size(1 << (tag - 0xc4)))
	case tag == 0xcb:
		return math.Float64frombits(binary.BigEndian.Uint64(u.take(8)))
	case tag >= 0xcc && tag <= 0xcf:
		return int64(u.size(1 << (tag - 0xcc)))
	case tag == 0xd0:
		return int64(int8(u.size(1)))
	case tag == 0xd1:
		return int64(int16(u.size(2)))
	case tag == 0xd2:
		return int64(int32(u.size(4)))
	case tag == 0xd3:
		return int64(u.size(8))
	case tag >= 0xd9 && tag <= 0xdb:
		return u.text(u.size(1 << (tag - 0xd9)))
	case tag == 0xdc || tag == 0xdd:
		return u.array(u.size(2 << (tag - 0xdc)))
	case tag == 0xde || tag == 0xdf:
		return u.mapping(u.size(2 << (tag - 0xde)))
	default:
		panic(fmt.Sprintf("tag %#x is not used by this protocol", tag))
	}
}
