//! Memory of a device, typed.

use std::marker::PhantomData;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::device::{Address, Device, DeviceError, Download};

/// Numbers that buffers hold.
pub trait Number: FromBytes + IntoBytes + Immutable + Copy + Default + Send + Sync {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + Default + Send + Sync> Number for T {}

/// Numbers in a device's memory, released when this is dropped.
#[derive(Debug)]
pub struct Buffer<T> {
    device: Arc<dyn Device>,
    address: Address,
    length: usize,
    numbers: PhantomData<T>,
}

/// Part of a [`Buffer`]. Ops read and write through it.
#[derive(Debug)]
pub struct Slice<'a, T> {
    address: Address,
    length: usize,
    buffer: PhantomData<&'a Buffer<T>>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<T: Number> Buffer<T> {
    /// `length` zeros.
    pub fn zeros(device: &Arc<dyn Device>, length: usize) -> Result<Self, DeviceError> {
        let bytes = length
            .checked_mul(size_of::<T>())
            .ok_or(DeviceError::OutOfMemory { bytes: usize::MAX })?;
        Ok(Self {
            address: device.allocate(bytes)?,
            device: Arc::clone(device),
            length,
            numbers: PhantomData,
        })
    }

    /// A copy of these.
    pub fn of(device: &Arc<dyn Device>, numbers: &[T]) -> Result<Self, DeviceError> {
        let buffer = Self::zeros(device, numbers.len())?;
        buffer.upload(0, numbers)?;
        Ok(buffer)
    }

    /// Numbers that it holds.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All of it.
    pub fn all(&self) -> Slice<'_, T> {
        self.from(0)
    }

    /// All from number `first` on.
    pub fn from(&self, first: usize) -> Slice<'_, T> {
        assert!(first <= self.length);
        Slice {
            address: Address(self.address.0 + (first * size_of::<T>()) as u64),
            length: self.length - first,
            buffer: PhantomData,
        }
    }

    /// Write numbers from place `first` on.
    #[allow(unsafe_code, reason = "the range is checked here")]
    pub fn upload(&self, first: usize, numbers: &[T]) -> Result<(), DeviceError> {
        let to = self.from(first);
        assert!(numbers.len() <= to.length);
        // SAFETY: so many numbers lie in this buffer from there on.
        unsafe { self.device.upload(to.address, numbers.as_bytes()) }
    }

    /// Read numbers from place `first` on, when what was queued is done.
    #[allow(unsafe_code, reason = "the range is checked here")]
    pub fn download(&self, first: usize, numbers: &mut [T]) -> Result<(), DeviceError> {
        let from = self.from(first);
        assert!(numbers.len() <= from.length);
        // SAFETY: so many numbers lie in this buffer from there on.
        unsafe { self.device.download(from.address, numbers.as_mut_bytes()) }
    }

    /// Queue a copy of `count` numbers from place `first` on, to be waited for apart from what is queued
    /// after it.
    #[allow(unsafe_code, reason = "the range is checked here")]
    pub fn begin_download(&self, first: usize, count: usize) -> Result<Pending<T>, DeviceError> {
        let from = self.from(first);
        assert!(count <= from.length);
        // SAFETY: so many numbers lie in this buffer from there on.
        let copy = unsafe {
            self.device
                .begin_download(from.address, count * size_of::<T>())
        }?;
        Ok(Pending {
            copy,
            count,
            numbers: PhantomData,
        })
    }

    /// All numbers, when what was queued is done.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let mut numbers = vec![T::default(); self.length];
        self.download(0, &mut numbers)?;
        Ok(numbers)
    }
}

/// Numbers on their way from the device.
#[derive(Debug)]
pub struct Pending<T> {
    copy: Box<dyn Download>,
    count: usize,
    numbers: PhantomData<T>,
}

impl<T: Number> Pending<T> {
    /// The numbers, when they are there.
    pub fn wait(self) -> Result<Vec<T>, DeviceError> {
        let mut numbers = vec![T::default(); self.count];
        self.copy.wait(numbers.as_mut_bytes())?;
        Ok(numbers)
    }
}

impl<T> Drop for Buffer<T> {
    #[allow(unsafe_code, reason = "the end of what `zeros` allocated")]
    fn drop(&mut self) {
        // SAFETY: allocated by `zeros` with this size; slices do not outlive the buffer.
        unsafe {
            self.device
                .release(self.address, self.length * size_of::<T>());
        }
    }
}

impl<T> Slice<'_, T> {
    /// Numbers that it holds.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Address on the device.
    pub fn address(&self) -> Address {
        self.address
    }
}

/// Address of an optional slice; null for none.
pub(crate) fn address_of<T>(slice: Option<Slice<'_, T>>) -> Address {
    slice.map_or(Address::NULL, |slice| slice.address)
}
