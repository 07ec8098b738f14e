module yunishard/interop

go 1.21
